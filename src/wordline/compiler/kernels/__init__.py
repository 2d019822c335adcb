"""Kernels of the GDDR6-AiM generation: how a graph operation runs in the banks."""
