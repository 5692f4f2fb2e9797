"""Peers of bench/data/run: peers.py NAME CHAIN FOLDER WORKERS EPOCHS prints the images a second that the loader delivers behind its
first epoch. Each has the transforms of ft's chain, batches of 64, f32 behind them, and drops what it gets."""
import sys
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64


def rate(epochs, pass_once):
    """pass_once() goes through one epoch and tells how many images there were."""
    pass_once()
    start, count = time.monotonic(), 0
    for _ in range(epochs - 1):
        count += pass_once()
    return count / (time.monotonic() - start)


def torch_rate(name, chain, folder, workers, epochs):
    import torch

    # torchvision's own operators are not used; where its library is for another build of torch, its Python still has to load
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in "nms", "qnms":
        try:
            library.define(operator + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        except RuntimeError:
            pass
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    sizes = {"train": [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()],
             "valid": [v2.Resize(256, antialias=True), v2.CenterCrop(224)]}[chain]
    to_image = [v2.ToImage()]
    steps = sizes + to_image if name == "torch-pil" else to_image + sizes
    data = ImageFolder(folder, v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]))
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True, drop_last=True, num_workers=workers, persistent_workers=True, prefetch_factor=2)

    def pass_once():
        return sum(len(label) for _, label in loader)

    return rate(epochs, pass_once)


def dali_rate(chain, folder, workers, epochs):
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def
    def pipeline():
        files, labels = fn.readers.file(file_root=folder, random_shuffle=True, name="files")
        if chain == "train":  # what DALI recommends: it decodes the part only, too
            images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=(0.08, 1), random_aspect_ratio=(3 / 4, 4 / 3))
            images = fn.resize(images, size=(224, 224), interp_type=types.INTERP_LINEAR, antialias=True)
            mirror = fn.random.coin_flip()
        else:
            images = fn.resize(fn.decoders.image(files, device="cpu", output_type=types.RGB), resize_shorter=256, interp_type=types.INTERP_LINEAR,
                               antialias=True)
            mirror = 0
        mean, std = [x * 255 for x in MEAN], [x * 255 for x in STD]
        return fn.crop_mirror_normalize(images, mirror=mirror, mean=mean, std=std, crop=(224, 224), output_layout="CHW"), labels

    pipe = pipeline(batch_size=BATCH, num_threads=workers, device_id=None, seed=1)
    pipe.build()
    steps = pipe.epoch_size("files") // BATCH

    def pass_once():
        for _ in range(steps):
            pipe.run()
        return steps * BATCH

    return rate(epochs, pass_once)


def main():
    name, chain, folder, workers, epochs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
    if name == "dali":
        print(dali_rate(chain, folder, workers, epochs))
    else:
        print(torch_rate(name, chain, folder, workers, epochs))


if __name__ == "__main__":
    main()
