// A small Fourier transform: radix 2, in place, real input.

/** Magnitudes of windows of `size` samples (a power of two), Hann-weighted. */
export class Fft {
  constructor(size) {
    this.size = size;
    this.real = new Float32Array(size);
    this.imaginary = new Float32Array(size);
    this.window = Float32Array.from({ length: size }, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / size));
    this.cosines = Float32Array.from({ length: size / 2 }, (_, i) => Math.cos((2 * Math.PI * i) / size));
    this.sines = Float32Array.from({ length: size / 2 }, (_, i) => Math.sin((2 * Math.PI * i) / size));
    this.places = reversed(size);
    this.magnitudes = new Float32Array(size / 2);
  }

  /** Of `samples` (at least `size` from `start` on): size / 2 magnitudes, a full-scale sine being 1. */
  transform(samples, start) {
    const { size, real, imaginary, window, places, magnitudes } = this;
    for (let i = 0; i < size; i++) real[places[i]] = (samples[start + i] ?? 0) * window[i];
    imaginary.fill(0);
    for (let half = 1; half < size; half *= 2) this.#stage(half);
    for (let i = 0; i < size / 2; i++) magnitudes[i] = (Math.hypot(real[i], imaginary[i]) * 4) / size;
    return magnitudes;
  }

  #stage(half) {
    const { size, real, imaginary, cosines, sines } = this;
    const stride = size / (2 * half);
    for (let block = 0; block < size; block += 2 * half) {
      for (let k = 0; k < half; k++) {
        const [one, two] = [block + k, block + k + half];
        const [cosine, sine] = [cosines[k * stride], sines[k * stride]];
        const turnedReal = real[two] * cosine + imaginary[two] * sine;
        const turnedImaginary = imaginary[two] * cosine - real[two] * sine;
        real[two] = real[one] - turnedReal;
        imaginary[two] = imaginary[one] - turnedImaginary;
        real[one] += turnedReal;
        imaginary[one] += turnedImaginary;
      }
    }
  }
}

function reversed(size) {
  const bits = Math.log2(size);
  return Uint32Array.from({ length: size }, (_, index) => {
    let turned = 0;
    for (let bit = 0; bit < bits; bit++) turned |= ((index >> bit) & 1) << (bits - 1 - bit);
    return turned;
  });
}
