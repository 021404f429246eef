"""The picture of all layers in a report."""

import xml.etree.ElementTree as xml

from workbench import layer_picture


def rows(columns, blocks, sqnr=lambda block, column: 20.0 + block + column):
    return [
        {"name": f"model.layers.{block}.mlp.m{column}_proj", "block": block, "sqnr_db": sqnr(block, column)}
        for block in range(blocks)
        for column in range(columns)
    ]


def test_each_layer_is_a_cell_and_the_worst_is_the_strongest():
    drawn = xml.fromstring(layer_picture.svg(rows(3, 4)))
    cells = {cell.find("title").text: cell for cell in drawn.findall("g")}
    assert len(cells) == 12
    strength = {name: float(cell.find("rect").get("fill-opacity")) for name, cell in cells.items()}
    assert strength["0 · mlp.m0_proj"] == max(strength.values()) == layer_picture.DARKEST
    assert strength["3 · mlp.m2_proj"] == min(strength.values()) == 0
    assert cells["1 · mlp.m2_proj"].find("text").text == "23.0"
    assert [text.text for text in drawn.findall("text")][:3] == ["m0", "m1", "m2"]


def test_layers_alike_have_no_colour_and_what_is_unknown_no_cell():
    drawn = xml.fromstring(layer_picture.svg(rows(2, 2, lambda block, column: 20.0 if block + column else None)))
    assert [cell.find("rect").get("fill-opacity") for cell in drawn.findall("g")] == ["0.00"] * 3


def test_no_picture_of_nothing_or_of_hundreds_of_experts():
    assert layer_picture.svg([]) == layer_picture.svg(rows(layer_picture.MOST_COLUMNS + 1, 1)) == ""
