# SPDX-License-Identifier: Apache-2.0
"""A client of nacos-sdk-python 3.x (gRPC), driven by words on stdin as NacosSdk.java; run by the Python of build/venv-nacos."""
import asyncio
import sys

from v2.nacos import (BatchRegisterInstanceParam, ClientConfigBuilder, DeregisterInstanceParam, ListInstanceParam,
                      ListServiceParam, NacosNamingService, RegisterInstanceParam, SubscribeServiceParam)


def show(instances):
    lines = []
    for i in instances:
        metadata = {k: v for k, v in sorted(i.metadata.items()) if k != "current_requests"}
        lines.append(f"{i.ip}:{i.port} {i.weight} {str(i.healthy).lower()} "
                     + "{" + ", ".join(f"{k}={v}" for k, v in metadata.items()) + "}")
    return "[" + ", ".join(sorted(lines)) + "]"


def say(line):
    print(line, flush=True)


async def main():
    config = ClientConfigBuilder().server_address(sys.argv[1]).log_level("ERROR")
    if len(sys.argv) > 2:
        config = config.username("nacos").password(sys.argv[2])
    naming = await NacosNamingService.create_naming_service(config.build())
    say("ready UP")

    async def heard(instances):
        say("event " + show(instances))

    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        w = line.split()
        try:
            if not w or w[0] == "quit":
                await naming.shutdown()
                say("bye")
                return
            if w[0] == "register":
                await naming.register_instance(RegisterInstanceParam(
                    service_name=w[1], group_name="DEFAULT_GROUP", ip="127.0.0.1", port=int(w[2]), weight=2.0,
                    metadata={"model_id": w[3]}, enabled=True, healthy=True, ephemeral=True))
                say("done")
            elif w[0] == "batch":
                await naming.batch_register_instances(BatchRegisterInstanceParam(
                    service_name=w[1], group_name="DEFAULT_GROUP",
                    instances=[RegisterInstanceParam(service_name=w[1], ip="127.0.0.1", port=int(p)) for p in w[2:]]))
                say("done")
            elif w[0] == "deregister":
                await naming.deregister_instance(DeregisterInstanceParam(
                    service_name=w[1], group_name="DEFAULT_GROUP", ip="127.0.0.1", port=int(w[2])))
                say("done")
            elif w[0] == "subscribe":
                await naming.subscribe(SubscribeServiceParam(service_name=w[1], group_name="DEFAULT_GROUP",
                                                             subscribe_callback=heard))
                say("done")
            elif w[0] == "list":
                say("list " + show(await naming.list_instances(ListInstanceParam(
                    service_name=w[1], group_name="DEFAULT_GROUP", subscribe=False, healthy_only=True))))
            elif w[0] == "services":
                found = await naming.list_services(ListServiceParam(page_no=1, page_size=10))
                say(f"services [{', '.join(found.services)}]")
            else:
                say("unknown")
        except Exception as e:
            say(f"error {e!r}")


asyncio.run(main())
