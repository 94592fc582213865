"""Reports: figures, and the page of a run."""

from thalweg.report import figures
from thalweg.report.page import write_report

__all__ = ["figures", "write_report"]
