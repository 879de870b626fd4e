// SPDX-License-Identifier: Apache-2.0
// An AI service as teams with Spring write it: it registers by application.yml alone, answers chats, and looks others up.
package weir;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

@SpringBootApplication
@RestController
public class App {
    private final DiscoveryClient discovery;

    App(DiscoveryClient discovery) {
        this.discovery = discovery;
    }

    @GetMapping("/health")
    public String health() {
        return "ok";
    }

    @PostMapping("/v1/chat/completions")
    public Map<String, Object> chat(@RequestBody Map<String, Object> request) {
        Map<String, Object> message = Map.of("role", "assistant", "content", "from spring");
        return Map.of("id", "1", "object", "chat.completion", "model", request.get("model"),
                      "choices", List.of(Map.of("index", 0, "message", message, "finish_reason", "stop")));
    }

    @GetMapping("/services")
    public List<String> services() {
        return discovery.getServices();
    }

    @GetMapping("/instances/{service}")
    public Map<String, String> instances(@PathVariable("service") String service) {
        Map<String, String> found = new TreeMap<>();
        for (ServiceInstance i : discovery.getInstances(service)) {
            found.put(i.getHost() + ":" + i.getPort(), i.getMetadata().getOrDefault("model_id", ""));
        }
        return found;
    }

    public static void main(String[] args) {
        SpringApplication.run(App.class, args);
    }
}
