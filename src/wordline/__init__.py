"""wordline: compiler, simulator and runtime for processing-in-memory devices."""
