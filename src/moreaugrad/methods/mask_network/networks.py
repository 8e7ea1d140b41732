"""Real-time saliency: a network that reads a classifier's own feature maps and answers with a mask."""

from moreaugrad.methods.mask_network.blend import Phi as Phi
from moreaugrad.methods.mask_network.decoder import MaskNet as MaskNet
from moreaugrad.methods.mask_network.encoder import Encoder as Encoder
from moreaugrad.methods.mask_network.fingerprint import Fingerprint as Fingerprint
from moreaugrad.methods.mask_network.loss import LOSSES as LOSSES
