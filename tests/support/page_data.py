"""What a page of ours carries, taken out again."""

import base64
import gzip
import json
import re
from typing import Any


def read_page(html: str) -> Any:
    """Unpack the data of a page."""
    return unpack(re.search(r'<script type="application/gzip" id="data">([^<]*)</script>', html)[1])


def unpack(packed: str) -> Any:
    """Unpack data as they lie in a page, and as a page that refreshes itself asks for them."""
    return json.loads(gzip.decompress(base64.b64decode(packed)))
