"""Run folders: one reader and one writer; train, sample and report from Python as from the command line."""
