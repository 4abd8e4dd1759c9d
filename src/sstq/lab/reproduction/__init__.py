"""Reproduction of every figure and table of the paper, comparing each number with the paper's.

experiment ──▶ jobs (method, seed) ──▶ one result file each ──▶ tables and pictures ──▶ report.html
"""

from sstq.lab.reproduction.experiments import EXPERIMENTS, Experiment
from sstq.lab.reproduction.jobs import Job, run_job
from sstq.lab.reproduction.lines import Line, Section
from sstq.lab.reproduction.methods import METHODS, Method
from sstq.lab.reproduction.paper import PAPER, PaperNumber, paper_number
from sstq.lab.reproduction.report import write_report
from sstq.lab.reproduction.runner import read_result, run_jobs
from sstq.lab.reproduction.scales import FULL, QUICK, Scale

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
