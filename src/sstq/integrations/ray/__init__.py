"""Ray: encode, aggregate and train on many cores or machines, as in one process (the [ray] extra).

One task a file, or a group of clients. Tasks change nothing but what they return, or publish one file once; what comes
back is added up as integers, by the driver, each result once. So neither order, nor the number of workers, nor a task
that is run again after its worker died can change the result. Sums of messages have the bits of one process; encoding
and training have them with a seed, on processors of one kind and, for training, with as many BLAS threads.
"""

from sstq.integrations.ray.aggregation import add_files
from sstq.integrations.ray.connection import connected
from sstq.integrations.ray.encoding import encode_shards
from sstq.lab.training.ray import RayRounds

__all__ = ["RayRounds", "add_files", "connected", "encode_shards"]
