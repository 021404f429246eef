"""A folder of texts: any beginning of it is a fair mix of its files."""

from workbench.quantization import calibration


def test_a_beginning_holds_the_same_share_of_each_file(tmp_path):
    for name, count in (("a", 4), ("b", 8), ("c", 2)):
        text = f"\n{calibration.DOCUMENT}\n".join(f"{name}{n}" for n in range(count))
        (tmp_path / f"{name}.txt").write_text(text)
    mixed = calibration.documents(tmp_path)
    assert sorted(mixed) == sorted([f"a{n}" for n in range(4)] + [f"b{n}" for n in range(8)] + ["c0", "c1"])
    half = [text[0] for text in mixed[:7]]
    assert (half.count("a"), half.count("b"), half.count("c")) == (2, 4, 1)


def test_held_and_calibration_text_share_no_run_of_ten_words():
    seen = set()
    for text in calibration.own_text():
        words = text.split()
        seen |= {tuple(words[at : at + 10]) for at in range(len(words) - 9)}
    for text in calibration.held_text():
        words = text.split()
        assert not any(tuple(words[at : at + 10]) in seen for at in range(len(words) - 9)), text[:60]
