"""Reproduction of every figure and table of the paper, comparing each number with the paper's.

experiment ──▶ jobs (method, seed) ──▶ one result file each ──▶ tables and pictures ──▶ report.html
"""

from paper.reproduction.experiments import EXPERIMENTS, Experiment
from paper.reproduction.jobs import Job, run_job
from paper.reproduction.lines import Line, Section
from paper.reproduction.methods import METHODS, Method
from paper.reproduction.paper import PAPER, PaperNumber, paper_number
from paper.reproduction.report import write_report
from paper.reproduction.runner import read_result, run_jobs
from paper.reproduction.scales import FULL, QUICK, Scale

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
