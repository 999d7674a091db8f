// Pages opened from a folder may start no worker; there the theme's search runs in a frame that behaves as one.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      const begin = () => {
        document.body.append(frame);
        this.inside = frame.contentWindow;
        this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = Object.assign(this.inside.document.createElement("script"), { src: url });
        script.onload = () => {
          this.loaded = true;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        };
        this.inside.document.body.append(script);
      };
      document.body ? begin() : addEventListener("DOMContentLoaded", begin);
    }
    postMessage(data) {
      if (this.loaded) this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data }));
      else this.waiting.push(data);
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
