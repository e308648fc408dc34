"""The page with all parts of the design system."""

from fastapi import APIRouter
from starlette.responses import Response

from confplane.console.page import PageDep

router = APIRouter()


@router.get("/console/design")
async def design(page: PageDep) -> Response:
    """All parts, with made-up content."""
    command = page.command(
        "PUT",
        "/v1/clusters/payments/client-quotas/user=payments",
        "set",
        "user=payments",
        "producer_byte_rate=10485760",
        body={"quotas": {"producer_byte_rate": 10485760}},
        headers={"If-Match": '"17"'},
    )
    return page.render("design.html", command=command)
