"""A plan on the terminal: equal layers together or each by its name, and what the patterns reach."""

from workbench import figures, matching, terminal
from workbench.choice import Choice
from workbench.plan import Plan
from workbench.words import say

MOST_RULES = 40  # an allocated recipe has one for every layer


def print_layers(made: Plan) -> None:
    """One line a layer; the last column is the pattern of the recipe that decides for it."""
    ruled = matching.deciding(made.matches)
    terminal.table(
        (say("Layer"), say("Shape"), say("Method"), say("Group"), say("Options"), say("Size"), say("Pattern")),
        [
            (
                each.linear.name, f"{each.linear.out_features} × {each.linear.in_features}",
                *_choice(each.choice), figures.bytes_of(each.bytes), ruled.get(each.linear.name),
            )
            for each in made.linears
        ],
    )  # fmt: skip


def _choice(choice: Choice) -> tuple[str, int | None, str | None]:
    """The method with its bits, the group, and what else counts for the method."""
    if choice.kept:
        return choice.method, None, None
    told = [say("symmetric") if choice.symmetric else say("with zero point")]
    if "gptq" in choice.method:
        told += [say("order {order}", order=choice.order), say("damping {damping}", damping=choice.damping)]
    told += [say("clip")] * choice.clip
    told += [say("scale")] * (choice.scale and "awq" in choice.method)
    told += [say("refine")] * (choice.refine and "gptq" in choice.method)
    return f"{choice.method} {choice.bits}", choice.group_size, ", ".join(told)


def print_rules(made: Plan) -> None:
    """What each pattern of the recipe reaches."""
    if made.matches:
        rows = [(each.rule.pattern, len(each.modules), each.holds) for each in made.matches[:MOST_RULES]]
        terminal.table((say("Pattern"), say("Matches"), say("Decides for")), rows)
        if len(made.matches) > MOST_RULES:
            more = len(made.matches) - MOST_RULES
            terminal.out.print(say("And {count} more {count:rule|rules}; --json lists all.", count=more))


def print_blocks(made: Plan) -> None:
    """Equal layers of all blocks in one line."""
    kinds: dict[tuple, list[int]] = {}
    for each in made.linears:
        key = (each.linear.leaf, f"{each.linear.out_features} × {each.linear.in_features}", each.choice)
        kinds.setdefault(key, []).append(each.bytes)
    terminal.table(
        (
            say("Layers"), say("Module"), say("Shape"), say("Method"), say("Bits"), say("Group"), say("Symmetric"),
            say("Size"),
        ),
        [
            (
                len(sizes), leaf, shape, choice.method,
                *(
                    (None,) * 3 if choice.kept
                    else (choice.bits, choice.group_size, say("yes") if choice.symmetric else say("no"))
                ),
                figures.bytes_of(sum(sizes)),
            )
            for (leaf, shape, choice), sizes in kinds.items()
        ],
    )  # fmt: skip


def print_sum(made: Plan) -> None:
    """What the result will take."""
    size, before = figures.bytes_of(made.predicted_bytes), figures.bytes_of(made.model.weight_bytes)
    terminal.out.print(say("Predicted size: {size}, the original has {before}.", size=size, before=before))
    if made.average_bits is not None:
        bits = f"{made.average_bits:.2f}"
        terminal.out.print(say("A quantized weight takes {bits} bits on average, scales included.", bits=bits))
