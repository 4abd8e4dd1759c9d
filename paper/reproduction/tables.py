"""The bits of the paper's Table 2, and the time of a round. `python -m paper orders` has Table 1."""

from __future__ import annotations

from paper.reproduction.jobs import Job
from paper.reproduction.lines import Line, Results, Section, judge
from paper.reproduction.methods import METHODS, Scale
from paper.reproduction.printed import paper_number

_BITS = 4
_NETWORK_DIMS = (25_450, 98_666)
_TEXT = """
Bits: of one message at the dimensions of the two networks (the paper's Table 2).

Time: a round of 100 clients with its gradients, messages, mean and step, on all cores of this machine; the fastest of
a few, because other work on the machine only ever adds. The paper's are of a single CPU that is not named, so the ratio
is for orientation.
"""
_SQKR_BITS = (
    "The coordinates are those of the Kashin representation, of which there are N and not d, so an index takes "
    "⌈log₂ N⌉ bits: one more each."
)


def tables_jobs(scale: Scale) -> list[Job]:
    """Return the timed rounds; bits need no job."""
    return [
        Job("timing", method, 0, _BITS, scale.timed_rounds, dim)
        for dim in scale.timing_dims
        for method in scale.methods_of("tables")
    ]


def tables_section(scale: Scale, results: Results) -> Section:
    """Compare Table 2 line by line, and seconds per round."""
    lines = [_bits_line(method, dim) for dim in _NETWORK_DIMS for method in scale.methods_of("tables")]
    lines += [_time_line(job, results[job]["seconds"]) for job in tables_jobs(scale)]
    return Section("tables", "Bits and time", _TEXT, lines, ())


def _bits_line(method: str, dim: int) -> Line:
    bits = METHODS[method].build(dim, 1.0, _BITS).message_bits
    paper = paper_number("bits", f"d = {dim}", method)
    verdict = judge(bits, paper)
    remark = _SQKR_BITS if method == "sqkr" else ""
    return Line(f"bits, d = {dim:,}", method, METHODS[method].label, bits, 0.0, 1, bits, paper, verdict, remark)


def _time_line(job: Job, seconds: list[float]) -> Line:
    fastest = min(seconds)
    paper = paper_number("timing", f"d = {job.dim}", job.method)
    remark = "" if paper is None else f"{paper.value / fastest:.0f} times as fast as the paper's."
    setting = f"seconds per round, d = {job.dim:,}"
    return Line(setting, job.method, METHODS[job.method].label, fastest, 0.0, 1, fastest, paper, "", remark)
