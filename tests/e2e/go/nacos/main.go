// SPDX-License-Identifier: Apache-2.0

// A Nacos client as applications in Go use it, driven by words on stdin as NacosSdk.java; what it hears goes to stdout, one line each.
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
)

var lock sync.Mutex

func say(format string, args ...any) {
	lock.Lock()
	defer lock.Unlock()
	fmt.Printf(format+"\n", args...)
}

func show(list []model.Instance) string {
	lines := []string{}
	for _, i := range list {
		metadata := []string{}
		for k, v := range i.Metadata {
			if k != "current_requests" {
				metadata = append(metadata, k+"="+v)
			}
		}
		sort.Strings(metadata)
		lines = append(lines, fmt.Sprintf("%s:%d %.1f %t {%s}", i.Ip, i.Port, i.Weight, i.Healthy, strings.Join(metadata, ", ")))
	}
	sort.Strings(lines)
	return "[" + strings.Join(lines, ", ") + "]"
}

func number(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		panic(err)
	}
	return n
}

func instance(service, port string) vo.RegisterInstanceParam {
	return vo.RegisterInstanceParam{Ip: "127.0.0.1", Port: number(port), ServiceName: service, Weight: 1, Enable: true,
		Healthy: true, Ephemeral: true}
}

func done(ok bool, err error) {
	if err != nil || !ok {
		say("error %t %v", ok, err)
	} else {
		say("done")
	}
}

func main() {
	host, port, err := net.SplitHostPort(os.Args[1])
	if err != nil {
		panic(err)
	}
	// What the SDK keeps on disk goes to the folder that the test started it in.
	options := []constant.ClientOption{constant.WithTimeoutMs(20000), constant.WithNotLoadCacheAtStart(true),
		constant.WithLogDir("log"), constant.WithCacheDir("cache"), constant.WithLogLevel("debug")}
	if len(os.Args) > 2 {
		options = append(options, constant.WithUsername("nacos"), constant.WithPassword(os.Args[2]))
	}
	param := vo.NacosClientParam{
		ClientConfig:  constant.NewClientConfig(options...),
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(host, number(port))},
	}
	naming, err := clients.NewNamingClient(param)
	if err != nil {
		panic(err)
	}
	for !naming.ServerHealthy() { // it connects in the background; the test bounds the wait
		time.Sleep(20 * time.Millisecond)
	}
	say("ready UP")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		w := strings.Fields(in.Text())
		switch w[0] {
		case "register":
			i := instance(w[1], w[2])
			i.Weight, i.Metadata = 2, map[string]string{"model_id": w[3]}
			done(naming.RegisterInstance(i))
		case "batch":
			list := []vo.RegisterInstanceParam{}
			for _, p := range w[2:] {
				list = append(list, instance(w[1], p))
			}
			done(naming.BatchRegisterInstance(vo.BatchRegisterInstanceParam{ServiceName: w[1], Instances: list}))
		case "deregister":
			done(naming.DeregisterInstance(vo.DeregisterInstanceParam{Ip: "127.0.0.1", Port: number(w[2]), ServiceName: w[1],
				Ephemeral: true}))
		case "subscribe":
			done(true, naming.Subscribe(&vo.SubscribeParam{ServiceName: w[1], SubscribeCallback: func(list []model.Instance, err error) {
				if err == nil {
					say("event %s", show(list))
				}
			}}))
		case "list":
			list, err := naming.SelectInstances(vo.SelectInstancesParam{ServiceName: w[1], HealthyOnly: true})
			if err != nil {
				say("error %v", err)
			} else {
				say("list %s", show(list))
			}
		case "services":
			list, err := naming.GetAllServicesInfo(vo.GetAllServiceInfoParam{PageNo: 1, PageSize: 10})
			if err != nil {
				say("error %v", err)
			} else {
				say("services [%s]", strings.Join(list.Doms, ", "))
			}
		case "config":
			config, err := clients.NewConfigClient(param)
			if err != nil {
				panic(err)
			}
			text, err := config.GetConfig(vo.ConfigParam{DataId: "data", Group: "DEFAULT_GROUP"})
			say("config %q %v", text, err)
			config.CloseClient()
		case "quit":
			naming.CloseClient()
			say("bye")
			return
		default:
			say("unknown")
		}
	}
}
