"""Drivers, one file each; see :mod:`wordline.runtime.driver` for what a driver provides."""
