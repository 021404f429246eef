"""What is said of one engine's steps follows the profile."""

from pathlib import Path

from workbench.engine.chunking import explained
from workbench.engine.profile import Profile


def test_each_choice_has_its_sentence():
    left = " ".join(map(str, explained(Profile(Path("m")))))
    assert "the engine chooses" in left and "short ones behind it wait" in left and "order in which they came" in left
    chosen = Profile(Path("m"), batched_tokens=2048, long_prefill=512, scheduling="priority")
    told = [str(each) for each in explained(chosen)]
    assert "2,048" in told[0] and "512" in told[1] and "short go first" in told[2]
