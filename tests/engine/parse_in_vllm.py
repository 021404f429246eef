"""Child: what vLLM's own parser makes of a command line, and every flag that it knows.

Arguments: the file of the answer, and the command line as JSON. The answer has `parsed`, each value as text, and
`flags`.
"""

import json
import sys
from pathlib import Path

from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

if __name__ == "__main__":
    parser = make_arg_parser(FlexibleArgumentParser())
    found = vars(parser.parse_args(json.loads(sys.argv[2])))
    flags = [name for each in parser._actions for name in each.option_strings]
    told = {"parsed": {name: str(value) for name, value in found.items()}, "flags": flags}
    Path(sys.argv[1]).write_text(json.dumps(told))
