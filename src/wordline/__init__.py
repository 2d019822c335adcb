"""wordline: compiler, cycle-level simulator and runtime for LLM inference on processing-in-memory devices."""

__version__ = "0.1.0"
