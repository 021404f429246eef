"""The Quantize page and a model for it."""

import pytest
from quantize_parts import small_model

from ui.quantize_page import QuantizePage


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path)


@pytest.fixture
def page(settings, tasks, notices, qapp):
    """It outlives what a test leaves running: qtbot would destroy it before other fixtures end that."""
    page = QuantizePage(settings, tasks, notices)
    page.resize(1290, 700)
    page.show()
    yield page
    page.close()
    page.deleteLater()
