"""The sessions that name a client's steps: its own, and those that it goes on with."""

from __future__ import annotations

import ctypes

from slotwise._messages import read
from slotwise.admin_calls import AdminCalls
from slotwise.core import Core, Handle, NamedStep
from slotwise.errors import FailedPrecondition, InvalidArgument
from slotwise.session import Session, SessionInfo, Step

# The fields of a step as the core takes it, and their bits.
STEP_FIELDS = {"session": 64, "number": 64, "trainer": 32, "trainers": 32, "parts": 32, "epoch": 64}


class SessionCalls(AdminCalls):
    """Describes sessions, and goes on with them."""

    def __init__(self, core: Core, client: Handle) -> None:
        super().__init__(core, client)
        self.session: Session = OwnSession(core, client)

    def describe_session(self, session: Session | None = None) -> SessionInfo:
        """Returns which steps of a session were applied last.

        The named steps are as durable as acknowledged pushes. A step that was in flight when its trainer was
        killed may still be applied after the answer. Pushing the same batch again under its number is safe:
        it is applied once.

        Args:
            session: known by its `id` and `epoch`; None: this client's own.
        """
        session = self.session if session is None else session
        self._settled()
        reply = self._ask("DescribeSession", {"session": session.id, "epoch": session.epoch})
        last = {each.get("table", ""): int(each.get("last_step", 0)) for each in reply.get("tables", [])}
        return read(SessionInfo, reply, tables=last)

    def resume(self, session: Session) -> SessionInfo:
        """Goes on with a session, for a trainer that was started again.

        Pushes that name no step are steps of `session` from now on, behind the last step that was applied. No
        push of the session may be in flight in this process. The client does not renew the session if the
        server forgets it.

        Returns:
            What the server knows of the session: `last_step` is where the trainer was.

        Raises:
            FailedPrecondition: the server has forgotten the session, or sessions of its age.
        """
        if not isinstance(session, Session) or isinstance(session, OwnSession):
            raise InvalidArgument(
                f"session is {session!r}, not a slotwise.Session with the id and epoch of before"
            )
        info = self.describe_session(session)
        if info.may_be_forgotten:
            raise FailedPrecondition(
                f"the server does not know session {session.id}, and has forgotten sessions of its "
                f"epoch, {session.epoch}: nobody knows which of its steps were applied"
            )
        session.go_on_behind(info.last_step)
        self.session = session
        return info


class OwnSession(Session):
    """A client's own session, which the client renews once a server has forgotten it."""

    def __init__(self, core: Core, client: Handle) -> None:
        self._core = core
        self._client = client
        self._trainers, self._mean = 1, False

    @property
    def id(self) -> int:  # type: ignore[override]
        """The next step's `session`."""
        return int(self._core.client_session(self._client))

    @property
    def epoch(self) -> int:  # type: ignore[override]
        """The next step's `epoch`."""
        return int(self._core.client_epoch(self._client))

    def next(self) -> Step:
        """Returns the next step."""
        step = NamedStep()
        self._core.client_next_step(self._client, ctypes.byref(step))
        return Step(*(getattr(step, name) for name in STEP_FIELDS))
