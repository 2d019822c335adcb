"""The simulator unit of HBM2-PIM: pseudo-channels whose blocks compute beside the banks (rules: docs/hbm2-pim.md)."""

from wordline.sim.hbm2_pim import banks, limits, timing
from wordline.sim.hbm2_pim.banks import PseudoChannel as ChannelState

__all__ = ["ChannelState", "banks", "limits", "timing"]
