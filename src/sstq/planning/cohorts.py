"""Planning training in cohorts: what one answer with the whole ε gains over many that share it."""

from sstq.checks import check_argument
from sstq.mechanisms import FrameUnit

__all__ = ["answer_variance", "gain_of_one_answer"]


def answer_variance(dim: int, epsilon: float) -> float:
    """Return the variance of one answer of norm clip, divided by d·clip², by FrameUnit's closed form.

    Examples:
        >>> round(answer_variance(7850, 8.0), 3), round(answer_variance(7850, 1.0), 2)
        (0.131, 6.33)
    """
    return FrameUnit(dim, epsilon).typical_error().variance / dim


def gain_of_one_answer(dim: int, total_epsilon: float, answers: int) -> float:
    """Return how many times less variance one answer with the whole ε has than the mean of k answers that share it.

    Examples:
        >>> round(gain_of_one_answer(7850, 8.0, 8), 2)
        6.04
    """
    answers = check_argument("answers", answers, of="rounds")
    return answer_variance(dim, total_epsilon / answers) / answers / answer_variance(dim, total_epsilon)
