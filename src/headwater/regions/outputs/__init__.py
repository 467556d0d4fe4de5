"""The list of files that sync wrote in a region and that exist nowhere else (hazard G4)."""

from headwater.regions.outputs.model import Output
from headwater.regions.outputs.protocol import Outputs

__all__ = ["Output", "Outputs"]
