"""The command line: configurations, run folders, commands. Nothing here is imported by the library."""
