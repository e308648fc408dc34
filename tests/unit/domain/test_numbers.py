import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.numbers import java_double, java_trim, parse_java_double, plain_number

# As java.lang.Double.toString prints them. JDKs before 19 spell the last two 1.0E-323 and 1.9999999999999998E23, which
# read back as the same doubles.
JAVA_VECTORS = [
    (0.0, "0.0"),
    (-0.0, "-0.0"),
    (200.0, "200.0"),
    (12.3, "12.3"),
    (0.1, "0.1"),
    (1e7, "1.0E7"),
    (9999999.0, "9999999.0"),
    (9999999.999999998, "9999999.999999998"),
    (12345678.0, "1.2345678E7"),
    (0.001, "0.001"),
    (0.0009999, "9.999E-4"),
    (0.0001, "1.0E-4"),
    (-0.0001, "-1.0E-4"),
    (1e22, "1.0E22"),
    (1e300, "1.0E300"),
    (123456789012345680.0, "1.2345678901234568E17"),
    (math.pi, "3.141592653589793"),
    (1.7976931348623157e308, "1.7976931348623157E308"),
    (2.2250738585072014e-308, "2.2250738585072014E-308"),
    (5e-324, "4.9E-324"),
    (1.5e-5, "1.5E-5"),
    (1e-323, "9.9E-324"),
    (2e23, "2.0E23"),
]


@pytest.mark.parametrize(("value", "text"), JAVA_VECTORS)
def test_java_layout(value: float, text: str) -> None:
    assert java_double(value) == text
    assert parse_java_double(text) == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_java_layout_reads_back(value: float) -> None:
    text = java_double(value)
    assert parse_java_double(text) == value
    assert math.copysign(1, parse_java_double(text)) == math.copysign(1, value)
    plain = value == 0 or 1e-3 <= abs(value) < 1e7
    assert re.fullmatch(r"-?[0-9]+\.[0-9]+" if plain else r"-?[1-9]\.[0-9]+E-?[1-9][0-9]*", text)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_text_for_what_json_has_no_number_for(value: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        java_double(value)
    with pytest.raises(ValueError, match="finite"):
        plain_number(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e7", 1e7),
        ("1.0E7", 1e7),
        (" \t12.5\x00\x1f", 12.5),
        ("5d", 5.0),
        ("5.5F", 5.5),
        ("5.", 5.0),
        (".5", 0.5),
        ("+7", 7.0),
        ("-0", -0.0),
        ("0x1p4", 16.0),
        ("0X.8P1d", 1.0),
        ("0x1.8p1", 3.0),
        ("1e999", math.inf),
        ("-1e999999999999999999999", -math.inf),
        ("1e-999999999999999999999", 0.0),
        ("0x1p5000", math.inf),
        ("-0x1p5000", -math.inf),
        ("0x1p99999999999999999999", math.inf),
        ("-0x1p-99999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("9" * 5000, math.inf),
    ],
)
def test_parse_java_double(text: str, value: float) -> None:
    assert parse_java_double(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "inf",
        "nan",
        "infinity",
        "1_000",
        "1,0",
        "1e",
        "0x1",
        "0xp1",
        "0x.p1",
        ".",
        "1 2",
        "\u00a05",
        "\u0663",
        "\uff15",
        "5ff",
        "--5",
    ],
)
def test_parse_java_double_refuses(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        parse_java_double(text)


def test_nan_is_read() -> None:
    assert math.isnan(parse_java_double("NaN"))
    assert math.isnan(parse_java_double(" -NaN "))


def test_trim_is_java_s() -> None:
    assert java_trim("\x00 a\u00a0 \n") == "a\u00a0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e22, "10000000000000000000000"),
        (1e23, "100000000000000000000000"),
        (1e-7, "0.0000001"),
        (1024.0, "1024"),
        (1024, "1024"),
        (9223372036854775807, "9223372036854775807"),
        (12.5, "12.5"),
        (-0.0, "0"),
        (0, "0"),
        (-3.25, "-3.25"),
    ],
)
def test_plain_number(value: float, text: str) -> None:
    assert plain_number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_plain_number_reads_back(value: float) -> None:
    text = plain_number(value)
    assert re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?", text)
    assert (int(text) if isinstance(value, int) else float(text)) == value
