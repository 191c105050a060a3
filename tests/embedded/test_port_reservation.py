from __future__ import annotations

import socket

import pytest

from slipstream.embedded.errors import PortTaken
from slipstream.embedded.port import LOOPBACK, reserve_port


def test_a_reserved_port_refuses_connections_until_somebody_listens_beside_it() -> None:
    with reserve_port() as reservation:
        address = reservation.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            listener.listen()
            for _ in range(20):  # every connection reaches the listener, none the reservation
                with socket.create_connection(address):
                    listener.accept()[0].close()


def test_a_given_port_is_reserved() -> None:
    with reserve_port() as free:
        port = free.getsockname()[1]
    with reserve_port(port) as reservation:
        assert reservation.getsockname() == (LOOPBACK, port)


def test_a_port_in_use_is_refused_and_named() -> None:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port}"):
            reserve_port(port)


def test_a_port_reserved_by_another_fleet_is_not_shared() -> None:
    with reserve_port() as other, pytest.raises(PortTaken):
        reserve_port(other.getsockname()[1])
