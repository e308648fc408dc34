from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from confplane.domain.jaas import JaasError, check_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    "value",
    [
        f'{MODULE} required username="admin" password="a;b=c\\"d" ;',
        f"{MODULE} required;",
        f"{MODULE} REQUISITE ;  \n",
        f"{MODULE} sufficient user='it \"is\"';",
        f"// a comment\n{MODULE} /* another */ optional a=b; // the end",
        f"{MODULE} required path=$home_dir-x;",
        f"{MODULE} required a = b\n\tc = d ;",
        f'{MODULE} required password="\u00fc\u20ac";',
        f"{MODULE} required name=\u20ac;",
        '"quoted.Module" "required" "key"="";',
    ],
)
def test_accepted(value: str) -> None:
    check_jaas(value)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("", "names no login module"),
        (" \n// nothing\n", "names no login module"),
        ("/* never closed", "names no login module"),
        (";", "login module 1: it begins with no class name"),
        ("1.Module required;", "it begins with no class name"),
        (MODULE, "the control flag is missing"),
        (f"{MODULE};", "the control flag is not one of optional, required, requisite, sufficient"),
        (f"{MODULE} needed;", "the control flag is not one of"),
        (f'{MODULE} username="u";', "the control flag is not one of"),
        (f"{MODULE} required", "the closing semicolon is missing"),
        (f'{MODULE} required a="b"', "the closing semicolon is missing"),
        (f"{MODULE} required a;", "option 1 has no value"),
        (f"{MODULE} required a=;", "option 1 has no value"),
        (f'{MODULE} required a="b" c', "option 2 has no value"),
        (f"{MODULE} required password=1234;", "option 1 has no value"),
        (f"{MODULE} required password=-x;", "option 1 has no value"),
        (f"{MODULE} required =b;", "option 1 has no name"),
        (f"{MODULE} required a=b/c;", "the closing semicolon is missing"),
        (f"{MODULE} required; {MODULE} required;", "holds 2 login modules where exactly one is accepted"),
        (f"{MODULE} required; {MODULE}", "login module 2: the control flag is missing"),
        (f"Client {{ {MODULE} required; }};", "the control flag is not one of"),
        (f'{MODULE} required password="never closed;', "the closing semicolon is missing"),
        (f'{MODULE} required password="two\nlines";', "option 2 has no value"),
    ],
)
def test_refused(value: str, rule: str) -> None:
    with pytest.raises(JaasError) as caught:
        check_jaas(value)
    assert rule in str(caught.value)
    assert str(caught.value).startswith("sasl.jaas.config")


@given(st.lists(st.sampled_from(["Q1", "Q2", '"Q3 x"', "'Q4'", "=", ";", " ", "\n", "/", "-", "7", "required", "a.B"])))
def test_nothing_of_it_is_repeated(parts: list[str]) -> None:
    """For any text with a fault at any place, the message says only the rule and the place."""
    try:
        check_jaas("".join(parts))
    except JaasError as error:
        assert "Q" not in str(error)
        assert "a.B" not in str(error)
