"""``slipstream serve``: the gateway before nodes that run elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import uvloop

from slipstream.cli.config import DEFAULT_FILE
from slipstream.cli.descriptors import allow_many_connections
from slipstream.cli.stopping import bear_early_reloads, stop_signals
from slipstream.config import FleetConfig, load, warnings
from slipstream.config.sources import files_of
from slipstream.control.watch import Signature, signature_of
from slipstream.core.errors import ConfigError
from slipstream.service import CanNotListen, Service, running
from slipstream.telemetry.line_file import CanNotWrite
from slipstream.telemetry.logs import configure_logs
from slipstream.telemetry.sinks import TracingNotInstalled

__all__ = ["serve"]


def serve(
    config: Annotated[Path, typer.Option("--config", "-c", help="Configuration file.")] = DEFAULT_FILE,
) -> None:
    """Run the gateway before the nodes of a configuration file, until Ctrl-C or SIGTERM.

    The file is read again when it changes, and on SIGHUP; one that can not be used changes nothing.
    """
    bear_early_reloads()
    known = signature_of([config])
    try:
        loaded = load(config)
    except ConfigError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    known = signature_of(files_of(config, loaded)) | known
    for warning in warnings(loaded):
        typer.echo(f"{config}: warning: {warning}", err=True)
    configure_logs(loaded.log.level, loaded.log.format)
    allow_many_connections()
    try:
        uvloop.run(_serve(loaded, config, known))
    except (ConfigError, CanNotListen, CanNotWrite, TracingNotInstalled) as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None


async def _serve(config: FleetConfig, path: Path, known: Signature) -> None:
    service: Service | None = None

    def reload() -> None:
        if service is not None:  # one that only begins reads what there is now anyway
            service.reload("SIGHUP")

    with stop_signals(reload=reload) as told:
        async with running(config, path, known) as service:
            _announce(service, path)
            await told.wait()
            typer.echo("stopping: no new requests, running ones may finish", err=True)


def _announce(service: Service, path: Path) -> None:
    nodes = len(service.config.nodes)
    typer.echo(f"gateway on {service.gateway_url}, admin on {service.admin_url}, {nodes} node{'s' * (nodes != 1)}")
    typer.echo(f"{path} is read again when it changes, and on SIGHUP")
