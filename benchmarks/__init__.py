"""What wordline is measured by: device cycles, accuracy, and the speed of the simulator (``docs/benchmarks.md``)."""
