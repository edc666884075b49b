"""Fixtures of the tests."""

import pytest

import peers


@pytest.fixture(scope="session")
def probe():
    p = peers.Probe()
    yield p
    p.close()
