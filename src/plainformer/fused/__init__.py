"""Training on a processor with its small steps in one piece each: norms, rotary turns, gates, causal attention.

Between its matrix products a step of torch's reads and writes the same numbers many times over. `fused.c` reads them
once, forward and backward; it is compiled once for this machine, by the compiler that is there. Where there is none,
torch's own operations stay.
"""

from plainformer.fused.fusing import fuse as fuse
from plainformer.fused.library import library as library
