"""Every figure and table of the paper again, each number beside the paper's.

experiment ──▶ jobs (method, seed) ──▶ one result file each ──▶ tables and pictures ──▶ report.html
"""

from sstq.reproduction.experiments import EXPERIMENTS, Experiment
from sstq.reproduction.jobs import Job, run_job
from sstq.reproduction.lines import Line, Section
from sstq.reproduction.methods import METHODS, Method
from sstq.reproduction.paper import PAPER, PaperNumber, paper_number
from sstq.reproduction.report import write_report
from sstq.reproduction.runner import read_result, run_jobs
from sstq.reproduction.scales import FULL, QUICK, Scale

__all__ = [
    "EXPERIMENTS",
    "FULL",
    "METHODS",
    "PAPER",
    "QUICK",
    "Experiment",
    "Job",
    "Line",
    "Method",
    "PaperNumber",
    "Scale",
    "Section",
    "paper_number",
    "read_result",
    "run_job",
    "run_jobs",
    "write_report",
]
