"""Simulation of device programs, and the physical limits they are compared with."""
