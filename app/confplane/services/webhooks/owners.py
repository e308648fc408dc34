"""The rights of the owners of subscriptions, by which their events are chosen.

An owner has the grants of its principal; the groups that it had take rights away, and give none: nobody would notice
that a person left a group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confplane.domain.access.identities import ADMIN, Authentication, Identity
from confplane.domain.access.operations import Operation
from confplane.domain.errors import ForbiddenError
from confplane.services.reads.trail import visible

if TYPE_CHECKING:
    from confplane.domain.access.ranges import NameRanges
    from confplane.services.access import Access, AccessControl
    from confplane.services.ports.feed import FeedRequest
    from confplane.services.ports.webhooks import Subscription


class WebhookOwners:
    """Decides for owners.

    Args:
        control: Makes the rights of an identity.
    """

    def __init__(self, control: AccessControl) -> None:
        self._control = control

    def access(self, subscription: Subscription) -> Access:
        """Return the access of a subscription's owner.

        Raises:
            UnavailableError: Tokens and grants are not known.
        """
        kind = Authentication.ADMIN_TOKEN if subscription.owner == ADMIN else Authentication.BEHALF
        identity = Identity(subscription.owner, kind, is_kafka_user=False, denying_groups=subscription.groups)
        return self._control.access(identity, "webhooks", str(subscription.id))

    def visible(self, subscription: Subscription) -> NameRanges | None:
        """Return the entities whose changes the owner may see; None: all.

        Raises:
            UnavailableError: Tokens and grants are not known.
        """
        return visible(self.access(subscription), subscription.cluster)

    def may_see(self, subscription: Subscription, request: FeedRequest) -> bool:
        """Return True if the owner may describe all entities of a change request.

        Raises:
            UnavailableError: Tokens and grants are not known.
        """
        described = self.described(subscription)
        return all(each in described for each in request.entity_ids)

    def described(self, subscription: Subscription) -> NameRanges:
        """Return the entities that the owner may describe.

        Raises:
            UnavailableError: Tokens and grants are not known.
        """
        return self.access(subscription).allowed(subscription.cluster, Operation.DESCRIBE_CONFIGS)

    def loss(self, subscription: Subscription) -> str | None:
        """Return what an owner has lost, in words; None if it may still have a subscription.

        Raises:
            UnavailableError: Tokens and grants are not known.
        """
        found = self.visible(subscription)
        if found is not None and not found:
            return f"its owner {subscription.owner} has no grant of its own left to see configs of the cluster"
        if subscription.by_token and not subscription.owner_has_token:
            return f"the last token of its owner {subscription.owner} has ended"
        return None


def check_creator(access: Access) -> None:
    """Refuse a caller who can't own a subscription.

    Raises:
        ForbiddenError: The credential is limited, or is used for another user.
    """
    identity = access.identity
    if identity.narrowing is not None:
        raise ForbiddenError(
            f"The credential of {identity.principal} is limited, and a webhook would not be. Use one without limits"
        )
    if identity.behalf_of is not None:
        raise ForbiddenError("A webhook is owned by the caller itself. Send the request without Confplane-On-Behalf-Of")
