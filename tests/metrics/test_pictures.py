"""Metrics of two maps as pictures, against scikit-image and closed forms."""

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from small_maps import maps

from moreaugrad.metrics.similarity import centre_shift, ssim


def scikit(a, b, cut):
    _, full = structural_similarity(
        a, b, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=1, full=True
    )
    return full[cut:-cut, cut:-cut].mean()


@pytest.mark.parametrize("shape", [(2, 3, 32, 41), (2, 1, 16, 12), (2, 24, 24)])
def test_ssim_is_scikit_images(shape):
    a, b = maps(0, shape), maps(1, shape)
    b = b + 0.7 * a
    found = ssim(a, b)
    for image in range(2):
        planes = [each[image].abs().reshape(-1, *shape[-2:]).sum(0).numpy() for each in (a, b)]
        first, second = ((each - each.min()) / (each.max() - each.min()) for each in planes)
        assert float(found[image]) == pytest.approx(scikit(first, second, 5), abs=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_raw_ssim_is_scikit_images_with_zeros_around_channel_by_channel(scale):
    a, b = maps(0, (2, 3, 15, 18)) * scale, maps(1, (2, 3, 15, 18)) * scale
    found = ssim(a, b, raw=True)
    for image in range(2):
        wanted = [scikit(np.pad(a[image, c].numpy(), 10), np.pad(b[image, c].numpy(), 10), 10) for c in range(3)]
        assert float(found[image]) == pytest.approx(np.mean(wanted), abs=1e-12)


def test_raw_ssim_rewards_small_maps_and_ours_does_not():
    a, b = maps(0, (1, 1, 64, 64)), maps(1, (1, 1, 64, 64))
    assert float(ssim(a * 1e-3, b * 1e-3, raw=True)) > 0.99
    assert abs(float(ssim(a, b, raw=True))) < 0.1
    assert float(ssim(a, b)) < 0.3
    torch.testing.assert_close(ssim(a * 1e-3, b * 20), ssim(a, b))


def test_ssim_of_constants():
    """(2ab + C1) / (a^2 + b^2 + C1) inside. The border sees the zeros around; its part of the sum grows with the side,
    the inner part with the square of it, so the second difference over three sizes is twice the formula."""
    a, b, c1 = 0.3, 0.8, 0.01**2

    def summed(side):
        one = torch.ones(1, 1, side, side, dtype=torch.float64)
        return side**2 * float(ssim(a * one, b * one, raw=True))

    inner = (summed(30) - 2 * summed(29) + summed(28)) / 2
    assert inner == pytest.approx((2 * a * b + c1) / (a * a + b * b + c1), abs=1e-10)
    flat = torch.full((1, 1, 20, 20), b)
    assert float(ssim(a * flat, flat)) == pytest.approx(1)
    assert float(ssim(0 * flat, flat)) == pytest.approx(1)  # both are flat pictures
    rough = flat.double() * (1 + 1e-12 * maps(0, (1, 1, 20, 20)))
    assert float(ssim(rough, flat.double())) == pytest.approx(1)  # rounding errors are no structure


def test_small_maps_for_ssim_are_refused():
    for shape in [(2, 1, 10, 40), (2, 40, 7)]:
        with pytest.raises(ValueError, match=r"at least 11 x 11.*interpolate"):
            ssim(torch.zeros(shape), torch.zeros(shape))
    with pytest.raises(ValueError, match="must be pictures"):
        ssim(torch.zeros(2, 30), torch.zeros(2, 30))
    with pytest.raises(TypeError, match="raw must be True or False"):
        ssim(maps(0), maps(1), raw="yes")


def test_many_maps_are_filtered_in_parts(monkeypatch):
    whole = ssim(maps(0), maps(1))
    monkeypatch.setattr("moreaugrad.metrics.similarity.AT_ONCE", 400)
    torch.testing.assert_close(ssim(maps(0), maps(1)), whole)


def test_centre_moves_as_the_mass_does():
    a = torch.zeros(2, 3, 20, 30, dtype=torch.float64)
    a[:, 0, 4, 5], a[:, 1, 6, 9] = 2, -2  # centre (5, 7)
    b = torch.zeros_like(a)
    b[0, 2, 8, 11] = 1e-5  # 3 down, 4 right
    b[1] = a[1].roll((7, -5), (1, 2))
    assert centre_shift(a, b).tolist() == pytest.approx([5, 74**0.5])
    assert centre_shift(a, a * 3).tolist() == [0, 0]
