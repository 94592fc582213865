"""Reports: figures, and the page of a run. The plots of chains are those of `thalweg.plot` under earlier names."""

from thalweg.core import shorten_signatures
from thalweg.plot import autocorrelation as autocorrelation_plot
from thalweg.plot import mixing as chain_plots
from thalweg.plot import rank as rank_plot
from thalweg.plot import running_mean as running_mean_plot
from thalweg.plot import trace as trace_plot
from thalweg.report import figures
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

shorten_signatures(globals(), __all__)
