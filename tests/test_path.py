"""A path of weights: every point as good as a solve of its own, for far less than that many solves."""

import pytest
import torch
from small_network import images, small_network

import moreaugrad as mg
from moreaugrad.core.solvers.path import mixed
