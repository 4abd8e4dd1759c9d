"""Ray integration: encode and aggregate on many cores or machines, with the results of one process (the [ray] extra).

One task per file. Tasks change nothing but what they return, or publish one file once; what comes
back is added up as integers, by the driver, each result once. So neither order, nor the number of workers, nor a task
that is run again after its worker died can change the result. Sums of messages have the bits of one process;
encoding has them with a seed, on processors of one kind. `paper.training.ray` trains on Ray in the same manner.
"""

from sstq.integrations.ray.aggregation import add_files
from sstq.integrations.ray.connection import connected
from sstq.integrations.ray.encoding import encode_shards

__all__ = ["add_files", "connected", "encode_shards"]
