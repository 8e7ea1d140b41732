"""Real-time saliency: a network that reads a classifier's own feature maps and answers with a mask."""

from moreaugrad.core.masking.decoder import MaskNet as MaskNet
from moreaugrad.core.masking.encoder import Encoder as Encoder
from moreaugrad.core.masking.fingerprint import Fingerprint as Fingerprint
from moreaugrad.core.masking.loss import LOSSES as LOSSES
from moreaugrad.core.masking.phi import Phi as Phi
