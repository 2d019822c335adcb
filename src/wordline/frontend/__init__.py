"""From a PyTorch model to a graph: loaders, tracing, lowering. The only floor that imports torch."""
