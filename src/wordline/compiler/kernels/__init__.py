"""Kernels: how a graph operation runs in the banks."""
