"""Kernels of HBM2-PIM (docs/hbm2-pim.md): how an operation runs in the blocks of the pseudo-channels."""
