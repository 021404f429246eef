"""Tokenizers compared by what their files say, not by their size or name."""

import json

import pytest

from workbench.catalog import vocabulary


def write(folder, words, added=(), merges=(), **parts):
    """A tokenizer.json of these words in their order; `added` are [text, id]."""
    folder.mkdir()
    model = {"type": "BPE", "vocab": {word: number for number, word in enumerate(words)}, "merges": list(merges)}
    content = {"model": model, "added_tokens": [{"content": text, "id": number} for text, number in added], **parts}
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


@pytest.fixture
def read(tmp_path):
    def make(name, *arguments, **parts):
        return vocabulary.read(write(tmp_path / name, *arguments, **parts))

    return make


def test_the_same_tokens_are_the_same(read):
    one, other = read("one", "abc", [["<s>", 3]]), read("other", "abc", [["<s>", 3]])
    match = vocabulary.compare(one, other)
    assert (match.kind, match.alike, match.total, match.cut_alike) == ("same", 4, 4, True)


def test_another_order_is_another_tokenizer(read):
    match = vocabulary.compare(read("one", "abc"), read("other", "acb"))
    assert (match.kind, match.alike) == ("other", 1)


def test_only_added_tokens_differ(read):
    target = read("target", "abc", [["<s>", 3], ["<user>", 4], ["<tool>", 5]])
    draft = read("draft", "abc", [["<user>", 3], ["<s>", 4]])
    match = vocabulary.compare(target, draft)
    assert (match.kind, match.moved, match.absent) == ("added", ("<s>", "<user>"), ("<tool>",))


def test_merges_are_compared_however_they_are_written(read):
    pairs, texts = read("pairs", "ab", merges=[["a", "b"]]), read("texts", "ab", merges=["a b"])
    none = read("none", "ab")
    assert vocabulary.compare(pairs, texts).cut_alike
    assert vocabulary.compare(pairs, none).kind == "same" and not vocabulary.compare(pairs, none).cut_alike


def test_a_normalizer_changes_how_text_is_cut(read):
    plain, folded = read("plain", "ab"), read("folded", "ab", normalizer={"type": "Lowercase"})
    assert not vocabulary.compare(plain, folded).cut_alike


def test_the_older_pair_of_files_is_read(tmp_path, read):
    folder = tmp_path / "older"
    folder.mkdir()
    (folder / "vocab.json").write_text('{"a": 0, "b": 1}')
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    (folder / "added_tokens.json").write_text('{"<end>": 2}')
    newer = read("newer", "ab", [["<end>", 2]], ["a b"], normalizer={"type": "NFC"})
    match = vocabulary.compare(newer, vocabulary.read(folder))
    assert match.kind == "same" and match.cut_alike, "the older files do not say how text is normalized"


def test_unigrams_are_numbered_by_their_place(tmp_path):
    folder = tmp_path / "unigram"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(
        json.dumps({"model": {"type": "Unigram", "vocab": [["▁a", -1.0], ["b", -2.0]]}})
    )
    assert vocabulary.read(folder).ids == {"▁a": 0, "b": 1}


def test_what_cannot_be_read_is_none(tmp_path):
    assert vocabulary.read(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": 3}}')
    assert vocabulary.read(tmp_path) is None


def test_a_changed_file_is_read_anew(tmp_path):
    folder = write(tmp_path / "model", "ab")
    assert len(vocabulary.read(folder).ids) == 2
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["c"] = 2
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert len(vocabulary.read(folder).ids) == 3


def test_rows_follow_the_tokens(read):
    target = read("target", "abc", [["<s>", 3], ["<user>", 4], ["<tool>", 5]])
    draft = read("draft", "abc", [["<user>", 3], ["<s>", 4]])
    # <tool> is unknown and row 5 is padding of the draft; 6 and 7 are padding of the target, 7 beyond the draft.
    assert vocabulary.rows(target, draft, 8, 7) == [0, 1, 2, 4, 3, 5, 6, None]


def test_an_unknown_token_does_not_take_the_row_of_one_that_moved(read):
    target = read("target", "ab", [["<tool>", 2], ["<s>", 3]])
    draft = read("draft", "ab", [["<s>", 2]])
    assert vocabulary.rows(target, draft, 4, 3) == [0, 1, None, 2]


def test_a_smaller_vocabulary_leaves_rows_away(read):
    target, draft = read("target", "ab"), read("draft", "ab", [["<s>", 2]])
    assert vocabulary.rows(target, draft, 2, 5) == [0, 1]
