"""Mean estimation of high-dimensional vectors under pure local differential privacy, in about 20 bits a client."""

from sstq.aggregation import Aggregator, Estimate
from sstq.codebooks import Codebook
from sstq.densities import Density
from sstq.frames import FourierFrame, HadamardFrame, OrthogonalFrame
from sstq.message_files import read_messages, write_messages
from sstq.messages import Messages
from sstq.schemes import SSTQ, ExpectedError, LocalReport, Mechanism, from_json, mechanism, mechanisms
from sstq.streams import mix_seed

__version__ = "0.1.0"

__all__ = [
    "SSTQ",
    "Aggregator",
    "Codebook",
    "Density",
    "Estimate",
    "ExpectedError",
    "FourierFrame",
    "HadamardFrame",
    "LocalReport",
    "Mechanism",
    "Messages",
    "OrthogonalFrame",
    "from_json",
    "mechanism",
    "mechanisms",
    "mix_seed",
    "read_messages",
    "write_messages",
]
