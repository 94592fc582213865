"""Reports: figures, the diagnostic plots of chains, and the page of a run."""

from thalweg.report import figures
from thalweg.report.chains import autocorrelation_plot, chain_plots, rank_plot, running_mean_plot, trace_plot
from thalweg.report.page import write_report

__all__ = [
    "autocorrelation_plot",
    "chain_plots",
    "figures",
    "rank_plot",
    "running_mean_plot",
    "trace_plot",
    "write_report",
]
