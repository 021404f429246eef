"""The Quantize page and a model for it."""

import pytest
from quantize_parts import small_model

from ui.quantize_page import QuantizePage


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path)


@pytest.fixture
def page(settings, tasks, notices, qtbot):
    page = QuantizePage(settings, tasks, notices)
    qtbot.addWidget(page)
    page.resize(1290, 700)
    page.show()
    return page
