"""Every figure and table of the paper again, with each number beside the paper's.

experiment ──▶ jobs (method, seed) ──▶ one result file each ──▶ a section ──▶ its record: tables and pictures
"""

from paper.reproduction.experiments import EXPERIMENTS, Experiment
from paper.reproduction.jobs import Job, run_job
from paper.reproduction.lines import Line, Section
from paper.reproduction.methods import METHODS, Method
from paper.reproduction.printed import PAPER, PaperNumber, paper_number
from paper.reproduction.records import markdown_table, write_record
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
    "markdown_table",
    "paper_number",
    "read_result",
    "run_job",
    "run_jobs",
    "write_record",
]
