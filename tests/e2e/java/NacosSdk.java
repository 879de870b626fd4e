// SPDX-License-Identifier: Apache-2.0
// A Nacos client as applications use it, driven by words on stdin; what it hears goes to stdout, one line each.
import com.alibaba.nacos.api.NacosFactory;
import com.alibaba.nacos.api.PropertyKeyConst;
import com.alibaba.nacos.api.config.ConfigService;
import com.alibaba.nacos.api.naming.NamingService;
import com.alibaba.nacos.api.naming.listener.NamingEvent;
import com.alibaba.nacos.api.naming.pojo.Instance;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

public class NacosSdk {
    static String show(List<Instance> list) {
        List<String> out = new ArrayList<>();
        for (Instance i : list) {
            Map<String, String> metadata = new TreeMap<>(i.getMetadata());
            metadata.remove("current_requests");
            out.add(i.getIp() + ":" + i.getPort() + " " + i.getWeight() + " " + i.isHealthy() + " " + metadata);
        }
        out.sort(null);
        return out.toString();
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.put(PropertyKeyConst.SERVER_ADDR, args[0]);
        if (args.length > 1) {
            p.put(PropertyKeyConst.USERNAME, "nacos");
            p.put(PropertyKeyConst.PASSWORD, args[1]);
        }
        NamingService naming = NacosFactory.createNamingService(p);
        say("ready " + naming.getServerStatus());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] w = line.split(" ");
            try {
                switch (w[0]) {
                case "register": {
                    Instance i = new Instance();
                    i.setIp("127.0.0.1");
                    i.setPort(Integer.parseInt(w[2]));
                    i.setWeight(2.0);
                    i.addMetadata("model_id", w[3]);
                    naming.registerInstance(w[1], i);
                    say("done");
                    break;
                }
                case "batch": {
                    List<Instance> list = new ArrayList<>();
                    for (int k = 2; k < w.length; k++) {
                        Instance i = new Instance();
                        i.setIp("127.0.0.1");
                        i.setPort(Integer.parseInt(w[k]));
                        list.add(i);
                    }
                    naming.batchRegisterInstance(w[1], "DEFAULT_GROUP", list);
                    say("done");
                    break;
                }
                case "deregister":
                    naming.deregisterInstance(w[1], "127.0.0.1", Integer.parseInt(w[2]));
                    say("done");
                    break;
                case "subscribe":
                    naming.subscribe(w[1], e -> say("event " + show(((NamingEvent) e).getInstances())));
                    say("done");
                    break;
                case "list":
                    say("list " + show(naming.selectInstances(w[1], true, false)));
                    break;
                case "services":
                    say("services " + naming.getServicesOfServer(1, 10).getData());
                    break;
                case "config": {
                    ConfigService config = NacosFactory.createConfigService(p);
                    say("config " + config.getConfig("data", "DEFAULT_GROUP", 3000));
                    config.shutDown();
                    break;
                }
                case "quit":
                    naming.shutDown();
                    say("bye");
                    System.exit(0);
                default:
                    say("unknown");
                }
            } catch (Exception e) {
                say("error " + e);
            }
        }
        System.exit(0);
    }
}
