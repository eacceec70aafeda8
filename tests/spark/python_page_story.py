"""Runs the examples of docs/python.md, in order, in a process with a SparkSession of somebody else.

Run as ``python python_page_story.py PAGE`` in an empty directory. The session is another's in every
way that could matter: other settings than ours, made before anything of ours is imported.
"""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path

_FOREIGN = """\
spark.master local[2]
spark.ui.enabled false
spark.ui.showConsoleProgress false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.sql.session.timeZone America/New_York
spark.sql.ansi.enabled false
spark.sql.shuffle.partitions 2
"""

if __name__ == "__main__":
    conf = Path("conf")
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(_FOREIGN)
    page = Path(sys.argv[1]).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "python.md", None, 0)
    found = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    settings = test.globs["spark"].conf if "spark" in test.globs else None
    if settings is not None:
        print(settings.get("spark.sql.session.timeZone"), settings.get("spark.sql.ansi.enabled"))
    print(f"{found.attempted} examples")
    sys.exit(1 if found.failed else 0)
